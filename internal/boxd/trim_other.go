//go:build !linux

package boxd

import "runtime/debug"

// trim gives back the free heap of an idle boxd.
func trim() { debug.FreeOSMemory() }
