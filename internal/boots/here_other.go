//go:build !linux

package boots

import "log/slog"

// Here logs a warning and returns "": only Linux has a boot id.
func Here(_ string, log *slog.Logger) string {
	log.Warn("power cuts cannot be detected: the kernel has no boot id")
	return ""
}
