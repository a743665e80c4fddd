// title: no empty group at the end: the wait for the last tile lets it be on its way
// scores: results 0, edges 2
// says: Missing ready edge
// base: right_fill_both.cu
<<<<
        if (t < tiles)
            for
====
        if (t >= tiles) return;
            for
>>>>
