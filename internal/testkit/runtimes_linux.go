package testkit

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/agentcli"
)

// Runtimes returns a directory, laid out like that of a server, with the pinned agent CLIs of
// these names. They are downloaded from the npm registry once for each clone.
// $HOLDFAST_TEST_RUNTIMES may name a directory that has them already. If they cannot be
// downloaded, the test is skipped with a loud message; under CI that counts as a failure.
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

// Claude returns a directory that contains the pinned Claude Code CLI as "claude".
// $HOLDFAST_TEST_CLAUDE may name such a directory for users who cannot reach the default one.
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
