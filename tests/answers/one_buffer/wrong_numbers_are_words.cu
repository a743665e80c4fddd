// title: numbers in quotes
// scores: measured 0, prediction 0
// says: must be a plain number
// literals: L = "1117 cycles"
// base: right_plain.cu
