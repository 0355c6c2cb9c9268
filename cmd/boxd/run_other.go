//go:build !linux

package main

import "github.com/holdfast-run/holdfast"

func run() error {
	return holdfast.Errorf(holdfast.KindUnavailable, "boxd", "boxes need Linux: boxd does not run on this operating system").
		WithHint("run holdfast on Linux, or in a Linux virtual machine")
}

func usualTimers() {}
