// title: takes the rows to lie COLUMNS words apart: right with one block only
// scores: results 2
// says: Wrong in every order
// base: right_plain.cu
<<<<
word / COLUMNS) * columns +
====
word / COLUMNS) * COLUMNS +
>>>>
