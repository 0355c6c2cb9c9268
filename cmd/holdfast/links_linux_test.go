package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
)

// The server's checker sees the links of a real box, as `holdfast check` sees those of
// the machine: two plain calls, one that makes a link and one that uses it.
func TestTheServerSeesTheLinksOfABox(t *testing.T) {
	cfg := config.Defaults()
	cfg.Data, cfg.Listen, cfg.Driver = testkit.BaseDir(t), "127.0.0.1:0", "local"
	cfg.Limits.Mode = sandbox.LimitsBestEffort
	cfg.Permissions.Sandbox = filepath.Join(t.TempDir(), "sandbox.json")
	if err := os.WriteFile(cfg.Permissions.Sandbox, []byte(`{"deniedPaths": ["/usr/share"]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	vars, err := startServer(t, cfg, t.Cleanup)
	if err != nil {
		t.Fatal(err)
	}
	holdfast := func(args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		run(context.WithoutCancel(t.Context()), args, func(k string) string { return vars[k] }, strings.NewReader(""), &out, &errs)
		return out.String() + errs.String()
	}
	id, _, _ := strings.Cut(holdfast("session", "create"), "\n")
	holdfast("send", id, `<script>[{"tool":"Bash","input":{"command":"ln -s ../usr l"}},{"tool":"Write","input":{"file_path":"m.sh","content":"ln -s /usr/share /tmp/m"}},{"tool":"Bash","input":{"command":"sh m.sh"}},{"say":"ok"}]</script>`)
	for _, cmd := range []string{"cat l/share/common-licenses/GPL-3", "cat /tmp/m/x", "cat /tmp/?/x", "cd l && ls share", "cat /proc/self/root/usr/share/x"} {
		if got := holdfast("policy", "explain", "--session", id, "Bash", "--", cmd); !strings.Contains(got, "deny by sandbox") {
			t.Errorf("%s: %s", cmd, got)
		}
	}
	if got := holdfast("policy", "explain", "--session", id, "Bash", "--", "cat l/bin/ls /tmp/x ./*"); strings.Contains(got, "deny by sandbox") {
		t.Errorf("a link to what is not denied: %s", got)
	}
}
