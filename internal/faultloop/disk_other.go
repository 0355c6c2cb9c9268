//go:build !linux

package faultloop

import (
	"syscall"

	"github.com/holdfast-run/holdfast"
)

const (
	stopSignal = syscall.Signal(0)
	contSignal = syscall.Signal(0)
	killSignal = syscall.Signal(0)
)

type disk struct{}

func newDisk(string) (*disk, error) {
	return nil, holdfast.Errorf(holdfast.KindUnavailable, "torture", "power cuts are made on Linux only")
}

func (*disk) data() string             { return "" }
func (*disk) ballast() string          { return "" }
func (*disk) program(string) string    { return "" }
func (*disk) boot([]string) error      { return nil }
func (*disk) cut(int) error            { return nil }
func (*disk) fill() error              { return nil }
func (*disk) close() error             { return nil }
func signal(int, syscall.Signal) error { return nil }
