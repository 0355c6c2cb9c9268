package main

import (
	"context"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/plain"
	"github.com/holdfast-run/holdfast/internal/tree"
	"github.com/holdfast-run/holdfast/sandbox"
)

// importFlags holds the flags for the first files of a new session.
type importFlags struct {
	From filled `placeholder:"DIR" xor:"import" help:"Start with a copy of this directory."`
	Git  filled `placeholder:"URL" xor:"import" help:"Start with a clone of this repository; URL#REF checks out a branch, a tag or a commit."`
}

func (f importFlags) imports() bool { return f.From != "" || f.Git != "" }

// create makes a session and gives it its first files. If an earlier command broke off in
// the middle of the same import, it goes on with that session.
func (f importFlags) create(e *env, c *client.Client, req holdfast.CreateSession, key string) (holdfast.Session, error) {
	if !f.imports() {
		return c.CreateSession(e.ctx, req, key)
	}
	dir, source, done, err := f.fetch(e)
	if err != nil {
		return holdfast.Session{}, err
	}
	defer done()
	req.Source = source
	s, err := unfinished(e, c, source)
	if err == nil && s.ID == "" {
		s, err = c.CreateSession(e.ctx, req, key)
	}
	if err != nil {
		return s, err
	}
	return f.importTo(e, c, s, dir)
}

// fetch returns the directory to import, a description of its source, and done, which removes
// what fetch made.
func (f importFlags) fetch(e *env) (dir, source string, done func(), err error) {
	if f.Git != "" {
		return cloneRepository(e, string(f.Git))
	}
	from := string(f.From)
	abs, err := filepath.Abs(from)
	if err != nil {
		return "", "", nil, noLocal(from, err)
	}
	info, err := os.Stat(abs)
	switch {
	case err != nil:
		return "", "", nil, noLocal(from, err)
	case !info.IsDir():
		return "", "", nil, holdfast.Errorf(holdfast.KindInvalid, "session create", "the local path %s is not a directory", holdfast.Quote(from)).
			WithHint("name a directory, or copy the file: holdfast cp %s SESSION:", word(from))
	}
	host, err := os.Hostname()
	if err != nil {
		host = "this machine"
	}
	return abs, "directory " + abs + " of " + host, func() {}, nil
}

// unfinished returns the newest session whose import from source is incomplete, among the newest 500
// active sessions, or a zero Session if there is none.
func unfinished(e *env, c *client.Client, source string) (holdfast.Session, error) {
	page, err := c.Sessions(e.ctx, holdfast.SessionFilter{Status: string(holdfast.StatusActive), Limit: 500})
	if err != nil {
		return holdfast.Session{}, err
	}
	for _, s := range page.Sessions {
		if s.Source != nil && !s.Source.Complete && s.Source.From == source {
			e.note("an earlier import from there was incomplete: this one goes on with session %s and its settings", s.ID)
			return s, nil
		}
	}
	return holdfast.Session{}, nil
}

// importTo copies dir into a session as its first files. It fails if a file cannot be read
// completely: the import is then incomplete.
func (f importFlags) importTo(e *env, c *client.Client, s holdfast.Session, dir string) (holdfast.Session, error) {
	root, err := tree.Root("session create", dir)
	if err != nil {
		return s, err
	}
	defer root.Close()
	var out holdfast.Imported
	pack := func(w io.Writer) error {
		sum, err := tree.Pack(root, ".", w, tree.Options{})
		if err == nil && len(sum.Incomplete) > 0 {
			err = holdfast.Errorf(holdfast.KindConflict, "session create", "a local file could not be read completely: %s", holdfast.Quote(sum.Incomplete[0]))
		}
		return err
	}
	err = e.sendTree(pack, func(tar io.Reader) (err error) { out, err = c.Import(e.ctx, s.ID, tar); return err })
	if err != nil {
		return s, incomplete(s.ID, err)
	}
	e.leftOut(out.Copied)
	if out.NoStart != "" {
		e.note("holdfast session diff will compare checkpoints, not with git: %s", out.NoStart)
	}
	with := ""
	if _, err := root.Lstat(".git"); err == nil {
		with = " (those of .git too)"
	}
	e.note("imported %s%s, %s", count(int(out.Copied.Files), "file", "files"), with, plain.Size(out.Copied.Bytes))
	return out.Session, nil
}

// incomplete returns the error of an import that broke off, with the hint how to continue.
func incomplete(id holdfast.SessionID, err error) error {
	e := holdfast.Errorf(holdfast.KindOf(err), "session create", "the import of files is incomplete: %w", err)
	return e.WithHint("run the same command again to go on with session %s; or remove the session: holdfast session delete %s --purge", id, id)
}

// gitRef matches names that git checkout can only take for a branch, a tag or a commit, not for
// an option.
var gitRef = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_./+@-]*$`)

// cloneRepository clones a repository into a new directory, which done removes. git runs as the
// caller, with the caller's credentials, but runs no code of the repository: the files are
// checked out under a configuration without filters and hooks.
func cloneRepository(e *env, from string) (dir, source string, done func(), err error) {
	from, ref, _ := strings.Cut(from, "#")
	if from == "" || ref != "" && !gitRef.MatchString(ref) {
		return "", "", nil, holdfast.Errorf(holdfast.KindInvalid, "session create", "--git names no repository (%s), or %s cannot be the name of a branch, tag or commit", holdfast.Quote(from), holdfast.Quote(ref)).
			WithHint("name both as in: holdfast session create --git https://github.com/you/project#main")
	}
	if _, err := exec.LookPath("git"); err != nil {
		return "", "", nil, holdfast.Errorf(holdfast.KindUnavailable, "session create", "git is not installed on this machine").
			WithHint("install git, or import a directory: holdfast session create --from DIR")
	}
	dir, err = os.MkdirTemp("", "holdfast-git-")
	if err != nil {
		return "", "", nil, holdfast.Errorf(holdfast.KindUnavailable, "session create", "the directory for the clone cannot be made: %w", err)
	}
	done = func() { _ = os.RemoveAll(dir) }
	if err := clone(e, from, ref, dir); err != nil {
		done()
		return "", "", nil, err
	}
	source = "git " + withoutSecrets(from)
	if ref != "" {
		source += "#" + ref
	}
	return dir, source, done, nil
}

func clone(e *env, from, ref, dir string) error {
	args := []string{"clone", "--no-checkout", "--no-local", "--no-recurse-submodules", "--template=", "--quiet"}
	if !e.json && isTerminal(e.stderr) {
		args[len(args)-1] = "--progress"
	}
	clean := withoutSecrets(from)
	if err := git(e, nil, append(args, "--", from, dir)...); err != nil {
		return hinted(err, holdfast.KindInvalid, "try it: git clone %s", word(clean))
	}
	// The commands below need no git configuration of the caller, so they run without any.
	bare := []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_ATTR_NOSYSTEM=1", "HOME=" + dir, "XDG_CONFIG_HOME=" + dir}
	in := func(args ...string) error { return git(e, bare, append([]string{"-C", dir}, args...)...) }
	if clean != from {
		if err := in("remote", "set-url", "--", "origin", clean); err != nil {
			return err
		}
	}
	if ref == "" {
		return in("reset", "--quiet", "--hard")
	}
	return hinted(in("checkout", "--quiet", ref, "--"), holdfast.KindInvalid, "git ls-remote %s lists its branches and tags", word(clean))
}

// git runs git with everything disabled that a repository could make it run. The end of its stderr is
// part of the error; if our stderr is a terminal and --json is not set, all of it is shown there.
func git(e *env, vars []string, args ...string) error {
	safe := []string{
		"-c", "core.hooksPath=" + os.DevNull, "-c", "core.fsmonitor=false", "-c", "submodule.recurse=false",
		"-c", "protocol.ext.allow=never", "-c", "advice.detachedHead=false",
	}
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", append(safe, args...)...)
	cmd.Env = append(append(os.Environ(), "GIT_ALLOW_PROTOCOL=https:http:ssh:git:file", "GIT_TERMINAL_PROMPT=1"), vars...)
	if !isTerminal(e.stdin) {
		cmd.Env = append(cmd.Env, "GIT_TERMINAL_PROMPT=0")
	}
	cmd.Stdin = e.stdin
	var said sandbox.Tail
	cmd.Stderr = &said
	if isTerminal(e.stderr) && !e.json {
		cmd.Stderr = io.MultiWriter(&said, safeOutput(e.stderr))
	}
	if err := cmd.Run(); err != nil {
		verb := args[0]
		if verb == "-C" {
			verb = args[2]
		}
		return holdfast.Errorf(holdfast.KindInvalid, "session create", "git %s failed: %w: %s", verb, err, line(said.String()))
	}
	return nil
}

// withoutSecrets returns a URL without the password or token in it.
func withoutSecrets(from string) string {
	u, err := url.Parse(from)
	if err != nil || u.User == nil || u.Host == "" {
		return from
	}
	if _, secret := u.User.Password(); secret || strings.HasPrefix(u.Scheme, "http") {
		u.User = nil
	}
	return u.String()
}
