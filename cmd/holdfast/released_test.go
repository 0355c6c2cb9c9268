package main

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/app"
)

// TestReleasedDrivers: the released program offers the drivers local and host, and refuses mem, the
// driver of the tests.
func TestReleasedDrivers(t *testing.T) {
	if names := app.ReleasedDrivers().Names(); !slices.Equal(names, []string{"local", "host"}) {
		t.Errorf("the released drivers are %q", names)
	}
	released := program{drivers: app.ReleasedDrivers()}
	home := t.TempDir()
	for _, args := range []string{"serve --listen 127.0.0.1:0 --driver mem", "doctor --set driver=mem"} {
		var out, errs bytes.Buffer
		getenv := func(name string) string { return map[string]string{"HOLDFAST_HOME": home}[name] }
		// If the program served after all, this end of its context would stop it.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		code := released.run(ctx, strings.Fields(args), getenv, strings.NewReader(""), &out, &errs)
		if code != holdfast.KindInvalid.ExitCode() || !strings.HasSuffix(errs.String(), "hint: use local or host\n") {
			t.Errorf("%s: code %d, %q %q", args, code, out.String(), errs.String())
		}
	}
}
