package agents

import (
	"bytes"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestSDKP20_SettingsOfAVersion: settings are read at deployment and pinned with
// the version; what makes no sense leaves nothing behind (SDK-P20, SDK-B20).
func TestSDKP20_SettingsOfAVersion(t *testing.T) {
	dir := t.TempDir()
	r, err := Open(t.Context(), Config{Dir: dir, Store: newStore(), Check: func(s holdfast.AgentSettings) error {
		if s.Model == "nobody" {
			return holdfast.Errorf(holdfast.KindInvalid, "agent", "no such model")
		}
		return nil
	}})
	must(t, err)
	before := clean(t, dir)
	md := entry{name: "CLAUDE.md", body: "x"}
	for _, c := range []struct {
		file entry
		part string
	}{
		{entry{name: "holdfast.yaml", body: "permissions: {deny: [Bsh]}"}, `holdfast.yaml: permissions.deny[0]: rule: "Bsh" is not a valid rule: there is no such tool hint: use a tool's name`},
		{entry{name: "holdfast.yaml", body: "modle: x"}, `holdfast.yaml: the key "modle" is not known`},
		{entry{name: "holdfast.yaml", body: "model: nobody"}, "no such model"},
		{entry{name: ".claude/settings.json", body: `{"permissions": {"defaultMode": "yolo"}}`}, `.claude/settings.json: permissions.defaultMode`},
		{entry{name: "holdfast.yml"}, `"holdfast.yml" would be ignored: it looks like a misspelled settings file hint: rename the file to holdfast.yaml`},
		{entry{name: ".claude/Settings.json"}, "rename the file to .claude/settings.json"},
	} {
		_, err := deploy(t, r, "a", md, c.file)
		wantKind(t, err, holdfast.KindInvalid, c.part)
		if n := clean(t, dir); n != before {
			t.Errorf("%s: %d versions on disk after a refusal, had %d", c.file.name, n, before)
		}
	}
	d, err := r.Deploy(t.Context(), "a", bytes.NewReader(makeTar(
		t, md, entry{name: "holdfast.yaml", body: "mode: plan\npermissions: {deny: [WebFetch]}"}, entry{name: ".claude/settings.json", body: `{"env": {}}`},
	)))
	must(t, err)
	if len(d.Notices) != 1 {
		t.Errorf("notices %q", d.Notices)
	}
	for range 2 {
		s, err := r.Settings(t.Context(), d.VersionID)
		must(t, err)
		if s.Mode != holdfast.ModePlan || len(s.Rules.Deny) != 1 || len(s.Sums) != 2 {
			t.Errorf("settings %+v", s)
		}
	}
	vs, err := r.Versions(t.Context(), "a")
	must(t, err)
	if vs[0].Settings.Mode != holdfast.ModePlan {
		t.Errorf("settings of the version %+v", vs[0].Settings)
	}
	for _, req := range []holdfast.UpdateAgent{{Mode: new("yolo")}, {Model: new("nobody")}, {Description: new("a\x00")}, {Description: new(strings.Repeat("x", 1001))}} {
		_, err := r.Update(t.Context(), "a", req)
		wantKind(t, err, holdfast.KindInvalid, "")
	}
	a, err := r.Update(t.Context(), "a", holdfast.UpdateAgent{Mode: new("auto"), Model: new("")})
	must(t, err)
	if a.Mode != holdfast.ModeAuto {
		t.Errorf("updated agent %+v", a)
	}
}
