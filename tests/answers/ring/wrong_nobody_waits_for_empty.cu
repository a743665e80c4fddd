// title: the producer does not ask whether the stage has been read
// scores: runs 0, results 2.33, edges 0, stages 0, flight 0
// says: is deadlocked
// base: right_bulk_copies.cu
<<<<
                if (turn > 0) mbarrier_wait(&empty[s], (turn - 1) & 1);

====

>>>>
