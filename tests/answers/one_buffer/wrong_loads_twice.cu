// title: every tile is loaded twice
// scores: buffer 2
// says: times the bytes
// base: right_plain.cu
<<<<
        __syncthreads();                                    // wait: the whole tile is there
====
        for (int i = 0; i < 4; ++i) {
            const int word = (i * THREADS + threadIdx.x) * 4;
            *(volatile unsigned*)&tile[word / COLUMNS][word % COLUMNS] = *(const volatile unsigned*)&strip[(size_t)(t * ROWS + word / COLUMNS) * columns + word % COLUMNS];
        }
        __syncthreads();                                    // wait: the whole tile is there
>>>>
