package policy_test

import (
	"reflect"
	"testing"

	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

// TestWalls: settings and rules that name fixed paths become walls by their absolute
// path, those with wildcards become patterns, and each layer keeps its own lists.
func TestWalls(t *testing.T) {
	t.Parallel()
	server := engine(t, policy.Config{
		Rules: rules(t, []string{"Read(/allowed)"}, []string{"Read(/asked/**)"}, []string{
			"Read(/etc/perl/**)", "read(~/.ssh/**)", "Read(./conf/key)", "Read(**/.env)", "Read(*.pem)", "Read(//srv/x)", "Read(/data/*/key)", "Read(**/secrets/**)",
			"Edit(/workspace/.git/hooks/**)", "Edit(/workspace/go.mod)", "Edit(**/vendor/**)", "Write(/only/the/tool)", "Grep(/only/grep)", `Edit(./a\*\[b\\c/**)`, "Read", "Bash(rm *)", "Read(sub/dir/**)",
		}),
		Sandbox: &check.Settings{DeniedPaths: []string{"/workspace/a/", "~/.aws", "/x/../y"}, DeniedWritePaths: []string{"/workspace/ro"}, AllowedReadPaths: []string{"/workspace", "~"}},
	})
	both, err := server.With(policy.Config{Sandbox: &check.Settings{AllowedReadPaths: []string{"/workspace/src"}, AllowedWritePaths: []string{"/workspace/out"}}})
	if err != nil {
		t.Fatal(err)
	}
	want := policy.Walls{
		Masked: []string{
			"/workspace/a/", "/home/agent/.aws", "/y", "/etc/perl/", "/home/agent/.ssh/", "/workspace/conf/key", "/srv/x", "/workspace/sub/dir/",
		},
		ReadOnly:      []string{"/workspace/ro", "/workspace/.git/hooks/", "/workspace/go.mod", `/workspace/a*[b\c/`},
		Readable:      [][]string{{"/workspace", "/home/agent"}, {"/workspace/src"}},
		Writable:      [][]string{{"/workspace/out"}},
		Patterns:      []string{"/**/.env", "/**/*.pem", "/data/*/key", "/**/secrets"},
		WritePatterns: []string{"/**/vendor"},
	}
	if got := both.Walls(policy.Home, policy.Cwd); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if w := engine(t, policy.Config{Rules: rules(t, []string{"Read(/a)"}, []string{"Edit(/b)"}, []string{"Bash(x)", "Read"})}).Walls(policy.Home, policy.Cwd); !w.Empty() {
		t.Errorf("walls without a rule of paths: %+v", w)
	}
}
