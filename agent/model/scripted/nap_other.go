//go:build !linux

package scripted

import "time"

// nap does nothing on this system; the caller's timer does the waiting.
func nap(time.Duration) {}
