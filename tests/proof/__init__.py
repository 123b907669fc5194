"""The proof: a workload under faults writes a history, and a checker searches the history for broken promises."""
