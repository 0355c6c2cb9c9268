//go:build !linux

package scripted

import "time"

// nap leaves it to the timer where the kernel's sleep is not at hand.
func nap(time.Duration) {}
