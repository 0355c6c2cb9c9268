package loop

import "time"

// Pause exposes the retry schedule.
func Pause(p Retry, n int, asked, rnd float64) (time.Duration, bool) { return p.pause(n, asked, rnd) }
