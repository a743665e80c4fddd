// title: both buffers are filled without asking whether there are two tiles
// scores: results 3.33, edges 0
// says: past the end
// base: right_fill_both.cu
<<<<
        if (t < tiles)

====
        if (t < tiles || t < 2)

>>>>
