//go:build !linux

package bench

import "time"

// processorTime returns 0: the CPU time of other processes is unknown.
func processorTime(int) time.Duration { return 0 }
