// title: L + C is far from the iteration
// scores: measured 0
// says: of the iteration that you entered
// literals: iteration = 3000
// base: right_plain.cu
