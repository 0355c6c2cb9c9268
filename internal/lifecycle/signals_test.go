package lifecycle

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("os/signal.loop")) }

func TestSignals(t *testing.T) {
	ctx, stop := Signals(t.Context())
	defer stop()
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("SIGTERM did not end the context")
	}
	if err := context.Cause(ctx); err == nil || !strings.Contains(err.Error(), "terminated") {
		t.Errorf("the cause does not name the signal: %v", err)
	}
	ctx, stop = Signals(t.Context())
	stop()
	<-ctx.Done()
}
