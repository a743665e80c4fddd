// title: shared memory for three tiles
// scores: buffers 2
// says: room for 3 tiles
// base: right_copy_groups.cu
<<<<
unsigned buffer[2][SAMPLES]
====
unsigned buffer[3][SAMPLES]
>>>>
<<<<
start_load(buffer[(t + 1) % 2]
====
start_load(buffer[(t + 1) % 3]
>>>>
<<<<
filter(buffer[t % 2]
====
filter(buffer[t % 3]
>>>>
<<<<
filter(buffer[(tiles - 1) % 2]
====
filter(buffer[(tiles - 1) % 3]
>>>>
