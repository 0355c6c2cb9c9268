//go:build linux && !amd64 && !arm64

package jail

import "golang.org/x/sys/unix"

// These programs are empty, because none exists for this architecture; Enter refuses to run.
var seccompProgramClone3, seccompProgramFiles []unix.SockFilter
