package testkit

import (
	"os"
	"testing"
)

// longTests is the environment variable that scripts/check sets to run long tests, and scripts/test-long to full.
const longTests = "HOLDFAST_TEST_LONG"

// Long skips a long test unless `make check` runs it: `make test` and a plain `go test` skip it.
// It must be the first statement of the test, so that TestEveryTestIsInATarget finds it.
func Long(t testing.TB) {
	t.Helper()
	if os.Getenv(longTests) == "" {
		t.Skip("left to make check (" + longTests + "=1 runs it)")
	}
}

// Rounds returns how many rounds a long test makes: full in `make test-long`, a tenth of that in `make check`.
func Rounds(full int) int {
	if os.Getenv(longTests) == "full" {
		return full
	}
	return full / 10
}
