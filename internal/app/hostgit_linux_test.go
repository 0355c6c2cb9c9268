package app_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
)

// hostGit runs the git of the host in a directory, as its user would call it there, without the user's configuration.
func hostGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	settings := []string{"-c", "safe.directory=*", "-c", "protocol.file.allow=always", "-c", "user.name=a", "-c", "user.email=a@example.com"}
	cmd := exec.Command("git", append(append(settings, "-C", dir), args...)...)
	// Git passes -c on to submodules, but not safe.directory: that one comes from a file.
	home := filepath.Join(filepath.Dir(dir), "githome")
	if err := os.MkdirAll(home, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[safe]\n\tdirectory = *\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "HOME="+home)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("git %v: %v: %s", args, err, out)
	}
	return string(out)
}

// handOver gives a directory to the user that the tests lend directories of.
func handOver(t *testing.T, dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		return
	}
	if out, err := exec.Command("chown", "-R", "1000:1001", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// superproject makes a repository of the user with a submodule sub/in, which has a submodule vendor/deep, and with two submodules
// that are not checked out: one has an empty directory, one has none.
func superproject(t *testing.T) string {
	t.Helper()
	deep, in, tree := ownRepository(t), ownRepository(t), ownRepository(t)
	commit := func(dir string) {
		hostGit(t, dir, "add", ".")
		hostGit(t, dir, "commit", "-qm", "one")
	}
	commit(deep)
	hostGit(t, in, "submodule", "--quiet", "add", deep, "vendor/deep")
	commit(in)
	for _, at := range []string{"sub/in", "out/empty", "gone/far"} {
		hostGit(t, tree, "submodule", "--quiet", "add", in, at)
	}
	commit(tree)
	hostGit(t, tree, "submodule", "--quiet", "update", "--init", "--recursive")
	hostGit(t, tree, "submodule", "--quiet", "deinit", "-f", "out/empty", "gone/far")
	if err := os.RemoveAll(filepath.Join(tree, "gone")); err != nil {
		t.Fatal(err)
	}
	handOver(t, tree)
	return tree
}

// plant is a function of the shell that makes a repository with a program of the agent in a directory, and lets the second
// directory name it as its own.
const plant = `plant() { mkdir -p $1/objects $1/refs/heads; echo ref: refs/heads/x > $1/HEAD; ` +
	`printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = %s\n\tfsmonitor = "touch '$EVIL'; false"\n' $3 > $1/config; ` +
	`echo "gitdir: $2" > $4; }; `

// attack runs a command of the agent. It fails if the git of the host then fails or runs a program of the agent, while the box is up or
// once it has stopped.
func attack(t *testing.T, c *client.Client, dir, command string) {
	t.Helper()
	evil := filepath.Join(filepath.Dir(dir), "evil")
	ses := inOwnDir(t, c, dir)
	turn(t, c, ses.ID, inBash("EVIL="+evil+"; "+plant+command+"; true"))
	for _, when := range []string{"while the box is up", "after the box"} {
		for _, args := range [][]string{{"status"}, {"diff"}, {"submodule", "status", "--recursive"}} {
			hostGit(t, dir, args...)
		}
		if _, err := os.Lstat(evil); err == nil {
			t.Errorf("git of the host ran a program of the agent, %s", when)
		}
		if _, err := c.StopContainers(t.Context(), holdfast.StopContainers{All: true}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHZ8_GitOfSubmodules: the agent cannot make the git of the host read another configuration in a submodule, whether it is nested,
// not checked out or absent, nor by moving directories.
func TestHZ8_GitOfSubmodules(t *testing.T) {
	c, _ := serve(t, settings(t, "local"))
	made, top := superproject(t), t.TempDir()
	for name, command := range map[string]string{
		"file":      `plant sub/in/.cache .cache ../ sub/in/.git`,
		"nested":    `plant sub/in/vendor/deep/.cache .cache ../ sub/in/vendor/deep/.git`,
		"empty":     `plant .cache ../../.cache $PWD/out/empty out/empty/.git`,
		"absent":    `mkdir -p gone/far; plant .cache ../../.cache $PWD/gone/far gone/far/.git`,
		"removed":   `rm -rf sub/in out gone; mkdir -p sub/in; plant sub/in/.cache .cache ../ sub/in/.git`,
		"moved":     `mv sub/in old; mkdir -p sub/in; plant sub/in/.cache .cache ../ sub/in/.git`,
		"parent":    `mv sub old; mkdir -p sub/in; plant sub/in/.cache .cache ../ sub/in/.git`,
		"symlink":   `mkdir -p x/in; plant x/in/.cache .cache ../ x/in/.git; mv out old; ln -s x out; mv sub/in old; ln -s ../x/in sub/in`,
		"directory": `rm sub/in/.git; plant sub/in/.git x ../ /dev/null`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(top, name, "repo")
			if out, err := exec.Command("sh", "-c", `mkdir "${1%/*}" && cp -a "$0" "$1"`, made, dir).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			attack(t, c, dir, command)
		})
	}
}

// TestHZ8_GitWithoutARepository: in a directory without .git the agent cannot make a bare repository of the directory itself, which the
// git of the host would obey there; in a directory of a repository that lies above, neither.
func TestHZ8_GitWithoutARepository(t *testing.T) {
	c, _ := serve(t, settings(t, "local"))
	const bare = `plant . x . /dev/null; mv HEAD old; plant . x . /dev/null`
	attack(t, c, filepath.Join(ownRepository(t), "sub"), bare)

	plain := ownRepository(t)
	if err := os.RemoveAll(filepath.Join(plain, ".git")); err != nil {
		t.Fatal(err)
	}
	head := filepath.Join(plain, "HEAD")
	if err := os.WriteFile(head, []byte("of the user\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	handOver(t, plain)
	ses := inOwnDir(t, c, plain)
	turn(t, c, ses.ID, inBash(`EVIL=$PWD/evil; `+plant+`echo ref: refs/heads/x > x; mv x HEAD; `+bare+`; cat HEAD; echo made > made`))
	if got := outcome(t, c, ses.ID).Content; !strings.Contains(got, "of the user") {
		t.Errorf("a file HEAD of the user: %q", got)
	}
	if b, err := os.ReadFile(head); err != nil || string(b) != "of the user\n" {
		t.Errorf("HEAD is %q, %v", b, err)
	}
	if _, err := os.Lstat(filepath.Join(plain, "made")); err != nil {
		t.Error("the agent cannot write beside HEAD")
	}
	if out, err := exec.Command("git", "-c", "safe.directory=*", "-C", plain, "status").CombinedOutput(); err == nil {
		t.Errorf("git of the host finds a repository: %s", out)
	}
}
