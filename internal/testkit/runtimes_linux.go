package testkit

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/agentcli"
)

// Runtimes is a directory, laid out as a server's, that has the pinned agent CLIs of
// these names. They are fetched from the npm registry once per clone.
// $HOLDFAST_TEST_RUNTIMES names a directory where they may be already. Where they
// cannot be fetched the test is skipped, loudly; under CI that is a failure.
func Runtimes(t testing.TB, names ...string) string {
	t.Helper()
	dir := os.Getenv("HOLDFAST_TEST_RUNTIMES")
	if dir == "" {
		dir = filepath.Join(Root(), ".cache", "runtimes")
	}
	store := agentcli.New(agentcli.Config{Dir: dir, Registry: os.Getenv("npm_config_registry")})
	for _, name := range names {
		_, err := store.Install(context.Background(), name, nil)
		switch {
		case holdfast.IsKind(err, holdfast.KindUnavailable) && os.Getenv("CI") == "":
			t.Skipf("SKIPPED LOUDLY: %s cannot be fetched: %v", name, err)
		case err != nil:
			t.Fatalf("%s: %v", name, err)
		}
	}
	return dir
}

// Claude is a directory that holds the pinned Claude Code CLI as "claude".
// $HOLDFAST_TEST_CLAUDE names one for users who cannot reach the other.
func Claude(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("HOLDFAST_TEST_CLAUDE"); dir != "" {
		return dir
	}
	dir := Runtimes(t, "claude")
	in, err := agentcli.New(agentcli.Config{Dir: dir}).Find("claude")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, in.Tree)
}
