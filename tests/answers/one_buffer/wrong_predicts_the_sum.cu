// title: predicts L + C for two buffers
// scores: prediction 0
// says: That is L + C
// literals: predicted_iteration = 1694
// base: right_plain.cu
