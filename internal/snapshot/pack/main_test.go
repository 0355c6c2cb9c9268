package pack_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain checks that neither the compressor nor anything else leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
