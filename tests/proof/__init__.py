"""The proof: a workload under faults writes a history, and a checker looks for breaches of the promises in it."""
