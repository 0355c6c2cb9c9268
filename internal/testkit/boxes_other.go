//go:build !linux

package testkit

import "testing"

// EndBoxes does nothing, because boxes need Linux.
func EndBoxes(testing.TB, string) {}
