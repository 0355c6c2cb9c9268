package config_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/config"
)

// TestLimitsOfWorkspaces: a workspace lowers limits, each within the bounds that the server's settings have; what it
// stored is lowered again when the server's own limit sinks below it.
func TestLimitsOfWorkspaces(t *testing.T) {
	server := config.Defaults().Limits
	got, err := server.Check(map[string]string{"memory": "2048MiB", "cpus": "0.50", "pids": "512", "tmp": ""})
	if want := map[string]string{"memory": "2GiB", "cpus": "0.5", "pids": "512", "tmp": ""}; err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	for text, want := range map[string]struct {
		kind   holdfast.Kind
		quotes string
	}{
		"memory=1KiB": {holdfast.KindInvalid, `the limit memory of a workspace cannot be "1KiB"`}, "memory=x": {holdfast.KindInvalid, `"x"`}, "cpus=-1": {holdfast.KindInvalid, `"-1"`},
		"memory=5GiB": {holdfast.KindDenied, "4GiB"}, "disk=11GiB": {holdfast.KindDenied, "10GiB"}, "copy=1MiB": {holdfast.KindInvalid, `"copy"`},
	} {
		key, value, _ := strings.Cut(text, "=")
		if _, err := server.Check(map[string]string{key: value}); !holdfast.IsKind(err, want.kind) || !strings.Contains(err.Error(), want.quotes) || holdfast.HintOf(err) == "" {
			t.Errorf("%s: %v (%s)", text, err, holdfast.HintOf(err))
		}
	}
	set := map[string]string{"memory": "2GiB", "pids": "64"}
	low, err := server.Lowered(set)
	if err != nil || low.Memory != 2<<30 || low.Pids != 64 || low.CPUs != server.CPUs {
		t.Errorf("%+v, %v", low, err)
	}
	server.Memory = 1 << 30
	if low, err = server.Lowered(set); err != nil || low.Memory != 1<<30 {
		t.Errorf("below the server's: %+v, %v", low, err)
	}
	if _, err = server.Lowered(map[string]string{"memory": "damaged"}); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("a damaged value: %v", err)
	}
}
