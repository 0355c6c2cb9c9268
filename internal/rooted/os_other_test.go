//go:build !linux

package rooted

import (
	"errors"
	"syscall"
)

func asUser(uint32) *syscall.SysProcAttr { return nil }

func bind(string, string) error { return errors.ErrUnsupported }

func unbind(string) {}
