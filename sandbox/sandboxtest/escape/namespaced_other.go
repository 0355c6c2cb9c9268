//go:build !linux

package escape

import "syscall"

func ordinary() *syscall.SysProcAttr { return nil }

func namespaced() *syscall.SysProcAttr { return nil }
