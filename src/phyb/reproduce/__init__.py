"""Tables of the paper made again: plan the runs, train what is missing, gather, compare, write."""
