//go:build !linux

package files

import "golang.org/x/sys/unix"

const onlyPath = unix.O_RDONLY
