//go:build linux

package local_test

import (
	"os"
	"testing"

	"github.com/holdfast-run/holdfast/internal/testkit"
)

// probe is the path of the program of the escape suite.
func probe(t *testing.T) string {
	t.Helper()
	if p := os.Getenv("HOLDFAST_TEST_PROBE"); p != "" {
		return p
	}
	return testkit.Program(t, "./sandbox/sandboxtest/escape/testdata/probe")
}
