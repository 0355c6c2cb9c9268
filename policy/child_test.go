package policy_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

// childOf returns the engine of a child agent, or of its child and so on.
func childOf(t *testing.T, e *policy.Engine, generations ...check.Settings) *policy.Engine {
	t.Helper()
	for _, s := range generations {
		var err error
		if e, err = e.Child(s); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

func inBox(command string) policy.Request {
	req := bash(holdfast.ModeBypassPermissions, command)
	req.Sandboxed = true
	return req
}

// TestChildLayers: lists that only a child agent has become layers of its processes;
// those of the whole box do not.
func TestChildLayers(t *testing.T) {
	parent := engine(t, policy.Config{Sandbox: &check.Settings{AllowedWritePaths: []string{"/workspace"}, DeniedPaths: []string{"~/.ssh", "/workspace/keys"}}})
	for name, c := range map[string]struct {
		e    *policy.Engine
		want []check.Layer
	}{
		"the parent": {parent, nil},
		"commands":   {childOf(t, parent, check.Settings{DeniedCommands: []string{"rm"}}), nil},
		"lists": {
			childOf(t, parent, check.Settings{AllowedReadPaths: []string{"~/x/", "/workspace/a"}, AllowedWritePaths: []string{"/workspace/a/../b"}}),
			[]check.Layer{{Read: []string{"/home/agent/x", "/workspace/a"}, Write: []string{"/workspace/b"}}},
		},
		"its child": {
			childOf(t, parent, check.Settings{AllowedWritePaths: []string{"/workspace/a"}}, check.Settings{AllowedReadPaths: []string{"/workspace/a/b"}}),
			[]check.Layer{{Write: []string{"/workspace/a"}}, {Read: []string{"/workspace/a/b"}}},
		},
		"walls of the box": {
			childOf(t, parent, check.Settings{AllowedWritePaths: []string{"/workspace/a"}, DeniedPaths: []string{"/workspace/keys/one", "/home/agent/.ssh"}}),
			[]check.Layer{{Write: []string{"/workspace/a"}}},
		},
		"to be read only": {
			childOf(t, parent, check.Settings{AllowedWritePaths: []string{"/workspace/a"}, DeniedWritePaths: []string{"/workspace/b", "/workspace/keys"}}),
			[]check.Layer{{Write: []string{"/workspace/a"}, ReadOnly: []string{"/workspace/b"}}},
		},
		"denied and left out": {
			childOf(t, parent, check.Settings{AllowedReadPaths: []string{"/workspace/a"}, AllowedWritePaths: []string{"/workspace/a"}, DeniedPaths: []string{"/workspace/b"}}),
			[]check.Layer{{Read: []string{"/workspace/a"}, Write: []string{"/workspace/a"}, Denied: []string{"/workspace/b"}}},
		},
	} {
		for _, req := range []policy.Request{inBox("ls"), file(holdfast.ModeDefault, "Read", "x")} {
			got, err := c.e.Scope(t.Context(), req)
			if diff := cmp.Diff(c.want, got.Layers); err != nil || diff != "" {
				t.Errorf("%s: %s: %v %s", name, req.Tool, err, diff)
			}
		}
		if d := decide(t, c.e, inBox("ls")); d.Verdict != policy.Allowed {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// TestChildDenialThatNothingHolds: if neither the box nor a list enforces a child's
// denied path, its commands are denied. Without a box only the text is checked.
func TestChildDenialThatNothingHolds(t *testing.T) {
	parent := engine(t, policy.Config{Sandbox: &check.Settings{DeniedPaths: []string{"/workspace/keys"}}})
	a := []string{"/workspace/a"}
	none := engine(t, policy.Config{})
	for name, s := range map[string][]check.Settings{
		"alone":            {{DeniedPaths: []string{"/workspace/b"}}},
		"only written":     {{DeniedPaths: []string{"/workspace/b"}, AllowedWritePaths: a}},
		"only read":        {{DeniedPaths: []string{"/workspace/b"}, AllowedReadPaths: a}},
		"inside":           {{DeniedPaths: []string{"/workspace/a/x"}, AllowedReadPaths: a, AllowedWritePaths: a}},
		"around":           {{DeniedPaths: []string{"/workspace"}, AllowedReadPaths: a, AllowedWritePaths: a}},
		"of the system":    {{DeniedPaths: []string{"/etc"}, AllowedReadPaths: a, AllowedWritePaths: a}},
		"temporary":        {{DeniedPaths: []string{"/tmp/x"}, AllowedReadPaths: a, AllowedWritePaths: a}},
		"above a wall":     {{DeniedPaths: []string{"/workspace/keys", "/workspace/key"}}},
		"to be written":    {{DeniedWritePaths: []string{"/workspace/b"}}},
		"read only inside": {{DeniedWritePaths: []string{"/workspace/a/x"}, AllowedWritePaths: a}},
		"of a grandparent": {{DeniedPaths: []string{"/workspace/b"}}, {AllowedCommands: []string{"ls"}}},
	} {
		if d := decide(t, childOf(t, none, s...), inBox("ls")); d.Verdict != policy.Denied {
			t.Errorf("%s, of a parent without settings: %+v", name, d)
		}
		e := childOf(t, parent, s...)
		d := decide(t, e, inBox("ls"))
		if d.Verdict != policy.Denied || d.By != "sandbox" || !strings.Contains(d.Reason, "a box has no walls") {
			t.Errorf("%s: %+v", name, d)
		}
		req := inBox("ls")
		req.Sandboxed = false
		if d := decide(t, e, req); d.Verdict != policy.Allowed {
			t.Errorf("%s: without a box: %+v", name, d)
		}
		if d := decide(t, e, file(holdfast.ModeDefault, "Read", "/workspace/c")); strings.Contains(d.Reason, "a box has no walls") {
			t.Errorf("%s: a tool that opens files by itself: %+v", name, d)
		}
	}
}

// TestChildHasItsParentsWalls: a path that only a child agent is denied does not become a
// wall of the box that it shares with its parent.
func TestChildHasItsParentsWalls(t *testing.T) {
	parent := engine(t, policy.Config{Sandbox: &check.Settings{DeniedPaths: []string{"/workspace/keys"}}})
	child := childOf(t, parent, check.Settings{AllowedWritePaths: []string{"/workspace/a"}, DeniedPaths: []string{"/workspace/b"}})
	const home, cwd = "/home/agent", "/workspace"
	if diff := cmp.Diff(parent.Walls(home, cwd), child.Walls(home, cwd)); diff != "" {
		t.Error(diff)
	}
}

// TestSDKB9_ChildrenOnlyTighten: a child's settings add to its parent's, unless the
// parent's allow weaker ones.
func TestSDKB9_ChildrenOnlyTighten(t *testing.T) {
	parent := engine(t, policy.Config{Sandbox: &check.Settings{DeniedCommands: []string{"rm"}, AllowedReadPaths: []string{"/workspace"}}})
	child := childOf(t, parent, check.Settings{DeniedCommands: []string{"mv"}, AutoAllowBashIfSandboxed: true, AllowUnsandboxedCommands: true})
	for _, command := range []string{"rm x", "mv x y", "cat /srv/x"} {
		if d := decide(t, child, inBox(command)); d.Verdict != policy.Denied {
			t.Errorf("%s: %+v", command, d)
		}
	}
	for name, e := range map[string]*policy.Engine{"settings": child, "none": childOf(t, new(policy.Engine), check.Settings{AutoAllowBashIfSandboxed: true, AllowUnsandboxedCommands: true})} {
		req := inBox("ls")
		req.Mode = holdfast.ModeDefault
		if d := decide(t, e, req); d.Verdict != policy.Denied {
			t.Errorf("%s: the child approves itself: %+v", name, d)
		}
		out := inBox("ls")
		out.Input = []byte(`{"command":"ls","dangerouslyDisableSandbox":true}`)
		if d := decide(t, e, out); d.Verdict != policy.Denied {
			t.Errorf("%s: the child lets itself out: %+v", name, d)
		}
	}
	if _, err := parent.Child(check.Settings{AllowedReadPaths: []string{"/srv"}}); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("nothing in common: %v", err)
	}
	weaker := engine(t, policy.Config{Sandbox: &check.Settings{DeniedCommands: []string{"rm"}, EnableWeakerNestedSandbox: true}})
	if d := decide(t, childOf(t, weaker, check.Settings{DeniedCommands: []string{"mv"}}), inBox("rm x")); d.Verdict != policy.Allowed {
		t.Errorf("a child that may be weaker: %+v", d)
	}
}
