// title: lets the next copy begin and waits before it lands
// scores: edge 0.5
// says: when it has landed it is too late
// literals: after = "H"
// base: right_copy_groups.cu
