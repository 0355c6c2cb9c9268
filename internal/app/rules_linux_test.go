//go:build linux

package app_test

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestRulesHoldWherePathsLead: in a real box, a link, /proc, and a search from above
// show a file tool nothing that a Read rule denies, and edits change none of it.
func TestRulesHoldWherePathsLead(t *testing.T) {
	cfg := settings(t, "local")
	cfg.Permissions.Deny = []string{"Read(**/.env)", "Read(/etc/alternatives/**)", "Read(/workspace/private/**)", "Edit(/workspace/fixed/**)"}
	c, _ := serve(t, cfg)
	if _, err := c.DeployAgent(t.Context(), "keeper", tarOf(t, entry{name: "CLAUDE.md", data: "x"},
		entry{name: "sub/.env", data: canary}, entry{name: "private/key", data: canary}, entry{name: "fixed/a", data: "fine"})); err != nil {
		t.Fatal(err)
	}
	ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Agent: "keeper", Mode: string(holdfast.ModeBypassPermissions)}, "")
	if err != nil {
		t.Fatal(err)
	}
	id := ses.ID
	if _, out := run(t, c, id, "ln -s sub/.env plain.txt; ln -s late/.env late.txt; ln -s private p; ln -s fixed f; ln -s /proc/self/root r; mkdir -p sub/.env.d; echo fine > sub/open; ln -s /etc/alternatives alt"); out != "" {
		t.Fatal(out)
	}
	// A matching file that appears after the start has no wall: file tools check the rule
	// when they open it.
	put(t, c, id, "late/.env", canary, 0)
	calls := []string{
		`{"tool":"Read","input":{"file_path":"sub/.env"}}`,
		`{"tool":"Read","input":{"file_path":"plain.txt"}}`,
		`{"tool":"Read","input":{"file_path":"late.txt"}}`,
		`{"tool":"Read","input":{"file_path":"p/key"}}`,
		`{"tool":"LS","input":{"path":"p"}}`,
		`{"tool":"LS","input":{"path":"alt"}}`,
		`{"tool":"Read","input":{"file_path":"/proc/self/root/workspace/private/key"}}`,
		`{"tool":"Read","input":{"file_path":"r/workspace/private/key"}}`,
		`{"tool":"Grep","input":{"pattern":"canary","path":"p","output_mode":"content"}}`,
		`{"tool":"Edit","input":{"file_path":"plain.txt","old_string":"walls","new_string":"holes"}}`,
		`{"tool":"Write","input":{"file_path":"f/new","content":"x"}}`,
		`{"tool":"Edit","input":{"file_path":"f/a","old_string":"fine","new_string":"changed"}}`,
		`{"tool":"Write","input":{"file_path":"p/new","content":"x"}}`,
		// From here on allowed files are shown, and denied ones are left out.
		`{"tool":"Grep","input":{"pattern":"canary|fine","output_mode":"content"}}`,
		`{"tool":"Glob","input":{"pattern":"**/*"}}`,
		`{"tool":"LS","input":{"path":"sub"}}`,
		`{"tool":"Read","input":{"file_path":"f/a"}}`,
	}
	const denied = 13
	turn(t, c, id, script(calls...))
	results := logged[holdfast.ToolFinished](t, c, id, holdfast.EventToolFinished)
	refused := logged[holdfast.ToolDecision](t, c, id, holdfast.EventToolDenied)
	if len(results)+len(refused) != len(calls) || len(refused) != 1 {
		t.Fatalf("%d results and %d denials: %+v", len(results), len(refused), refused)
	}
	for i, r := range results {
		call := calls[i+1]
		if strings.Contains(r.Content, canary) || !r.IsError && strings.Contains(r.Content, "private/key") {
			t.Errorf("%s shows %q", call, r.Content)
		}
		if r.IsError != (i+1 < denied) {
			t.Errorf("%s: %+v", call, r)
		}
	}
	shown := results[len(results)-4:]
	for i, want := range []string{"sub/open", "sub/open", "open", "fine"} {
		if !strings.Contains(shown[i].Content, want) {
			t.Errorf("%s does not show %q: %q", calls[denied+i], want, shown[i].Content)
		}
	}
}
