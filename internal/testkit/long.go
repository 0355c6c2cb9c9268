package testkit

import (
	"os"
	"testing"
)

// longTests is the variable that scripts/check sets.
const longTests = "HOLDFAST_TEST_LONG"

// Long leaves a test to `make check`: `make test`, and a plain `go test`, skip it. It is
// the first statement of the test, so that TestEveryTestIsInATarget can see it.
func Long(t testing.TB) {
	t.Helper()
	if os.Getenv(longTests) == "" {
		t.Skip("left to make check (" + longTests + "=1 runs it)")
	}
}
