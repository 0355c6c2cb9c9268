//go:build !linux

package escape

import "syscall"

func namespaced() *syscall.SysProcAttr { return nil }
