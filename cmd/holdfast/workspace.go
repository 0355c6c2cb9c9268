package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/plain"
)

type workspaceCmd struct {
	Create workspaceCreateCmd `cmd:"" help:"Make a workspace, or lend a directory of your own."`
	List   workspaceListCmd   `cmd:"" aliases:"ls" help:"List the workspaces."`
	Show   workspaceShowCmd   `cmd:"" help:"Show a workspace."`
	Update workspaceUpdateCmd `cmd:"" help:"Change what its new sessions get."`
	Delete workspaceDeleteCmd `cmd:"" aliases:"rm" help:"Delete a workspace; its sessions stay, with copies of its files."`
}

// spaceFlags are the flags for the settings of a workspace.
type spaceFlags struct {
	Title    *string   `placeholder:"TEXT" help:"The title."`
	Trust    *string   `name:"default-trust" placeholder:"TRUST" help:"The trust of its new sessions: untrusted or trusted."`
	Runtime  *string   `placeholder:"NAME" help:"How the agent of its new sessions runs: native, claude or acp:NAME."`
	Model    *string   `placeholder:"NAME" help:"The model of its new sessions."`
	AllowNet *[]string `placeholder:"DOMAIN" sep:"none" help:"A domain that the boxes of its new sessions may connect to; repeatable."`
	Mount    *string   `placeholder:"SCOPE" help:"The most that its new sessions have of the server's files: workspace, or tree-ro for tree_root at /tree too, read-only."`

	Env   map[string]string `placeholder:"K=V" mapsep:"none" help:"Environment of the tools of its new sessions; repeatable. Values are stored encrypted."`
	Limit map[string]string `placeholder:"NAME=VALUE" mapsep:"none" help:"A limit of its boxes below the server's: memory, cpus, pids, tmp or disk, as memory=2GiB; repeatable."`
	Allow *[]string         `placeholder:"RULE" sep:"none" help:"A permission rule that allows calls in its sessions; repeatable."`
	Ask   *[]string         `placeholder:"RULE" sep:"none" help:"A permission rule whose calls a person decides; repeatable."`
	Deny  *[]string         `placeholder:"RULE" sep:"none" help:"A permission rule that denies calls in its sessions; repeatable."`
}

func (s *spaceFlags) settings() holdfast.WorkspaceSettings {
	out := holdfast.WorkspaceSettings{
		Title: s.Title, DefaultTrust: s.Trust, Model: s.Model, Runtime: s.Runtime, Network: s.AllowNet, Env: s.Env, Limits: s.Limit, Mount: s.Mount,
		Permissions: map[string][]string{},
	}
	for key, rules := range map[string]*[]string{"allow": s.Allow, "ask": s.Ask, "deny": s.Deny} {
		if rules != nil {
			out.Permissions[key] = slices.DeleteFunc(*rules, func(rule string) bool { return rule == "" })
		}
	}
	return out
}

type workspaceCreateCmd struct {
	Name filled `arg:"" optional:"" name:"slug" help:"Its name: a-z, 0-9 and -. Without it, the name is made from --title or --dir."`
	Dir  filled `placeholder:"DIR" help:"A directory of your own, on the server's machine, to work in. It is never removed, and its files keep their owner."`
	spaceFlags
}

// Help returns the text that the help shows below the one-line description of the command.
func (*workspaceCreateCmd) Help() string {
	return `A workspace is a tree of files that outlives its sessions. Prints its name.

Examples:
  holdfast workspace create site
  holdfast workspace create --dir ~/src/site
  holdfast session create --workspace site`
}

// Run makes a workspace.
func (w *workspaceCreateCmd) Run(e *env) error {
	if w.Name != "" {
		if _, err := holdfast.Parse[holdfast.Slug](string(w.Name)); err != nil {
			return err
		}
	} else if w.Dir == "" && (w.Title == nil || *w.Title == "") {
		return holdfast.Errorf(holdfast.KindInvalid, "workspace create", "the workspace has no name: neither a name, a title nor a directory is given").
			WithHint("holdfast workspace create site, or holdfast workspace create --dir DIR")
	}
	dir, err := ownDir(string(w.Dir))
	if err != nil {
		return err
	}
	c, err := e.client()
	if err != nil {
		return err
	}
	made, err := c.CreateWorkspace(e.ctx, holdfast.CreateWorkspace{ID: string(w.Name), Dir: dir, Umask: umaskFor(dir), WorkspaceSettings: w.settings()})
	if err != nil {
		return err
	}
	return e.say(map[string]any{"workspace": made}, "%s", made.ID)
}

// ownDir returns the absolute path of a directory that the user named; empty if dir is empty.
func ownDir(dir string) (string, error) {
	if dir == "" {
		return "", nil
	}
	abs, err := filepath.Abs(dir)
	if err == nil && filepath.Clean(dir) == "." {
		// Resolve symlinks: the shell may have entered the current directory through one.
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return "", noLocal(dir, err)
	}
	return abs, nil
}

// ofWorkspace calls a method of the client for the workspace with a name, and returns its result.
func ofWorkspace[T any](e *env, name string, method func(*client.Client, context.Context, holdfast.Slug) (T, error)) (T, error) {
	id, err := holdfast.Parse[holdfast.Slug](name)
	if err != nil {
		var none T
		return none, err
	}
	return ask(e, func(c *client.Client, ctx context.Context) (T, error) { return method(c, ctx, id) })
}

type workspaceListCmd struct{}

// Run lists the workspaces.
func (*workspaceListCmd) Run(e *env) error {
	list, err := ask(e, (*client.Client).Workspaces)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, w := range list {
		rows = append(rows, []string{string(w.ID), strconv.Itoa(w.Sessions), string(w.DefaultTrust), when(w.CreatedAt), w.Dir, cut(line(w.Title), 40)})
	}
	return e.listing(map[string]any{"workspaces": list}, []string{"WORKSPACE", "SESSIONS", "TRUST", "CREATED", "DIRECTORY", "TITLE"}, rows)
}

type workspaceShowCmd struct {
	Name string `arg:"" name:"slug" help:"The workspace."`
}

// Run shows a workspace.
func (w *workspaceShowCmd) Run(e *env) error {
	one, err := ofWorkspace(e, w.Name, (*client.Client).Workspace)
	if err != nil {
		return err
	}
	if e.json {
		return e.print(map[string]any{"workspace": one})
	}
	return e.lines(plain.Workspace(one))
}

type workspaceUpdateCmd struct {
	Name string `arg:"" name:"slug" help:"The workspace."`
	spaceFlags
	UnsetEnv []string `placeholder:"NAME" sep:"none" help:"A name that the environment loses; repeatable."`
	Revision int64    `placeholder:"N" help:"Only if the workspace is at this revision."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*workspaceUpdateCmd) Help() string {
	return `Limits and rules hold for all sessions of the workspace: rules from the next call, limits from the next start of the box. For the rest, sessions that exist keep what they have. An empty value means the server's default. --allow, --ask and --deny replace the rules of their kind; "" removes them.

Examples:
  holdfast workspace update site --model anthropic/claude-sonnet-4-5
  holdfast workspace update site --default-trust "" --limit memory=1GiB --limit cpus=
  holdfast workspace update site --deny "Read(secrets/**)" --deny "Bash(rm *)"`
}

// Run changes a workspace.
func (w *workspaceUpdateCmd) Run(e *env) error {
	one, err := ofWorkspace(e, w.Name, func(c *client.Client, ctx context.Context, id holdfast.Slug) (holdfast.Workspace, error) {
		return c.UpdateWorkspace(ctx, id, holdfast.UpdateWorkspace{WorkspaceSettings: w.settings(), RemoveEnv: w.UnsetEnv, Revision: w.Revision})
	})
	if err != nil {
		return err
	}
	return e.say(map[string]any{"workspace": one}, "%s is at revision %d", one.ID, one.Revision)
}

type workspaceDeleteCmd struct {
	Name   string `arg:"" name:"slug" help:"The workspace."`
	Force  bool   `help:"End running turns of its sessions first."`
	DryRun bool   `help:"Say what would happen, and change nothing."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*workspaceDeleteCmd) Help() string {
	return `Its sessions stay with their conversations, each in a workspace of its own with the files of its newest checkpoint. Its files go to the trash, which holdfast trash empty empties; no command restores them from there. A directory of your own stays as it is.

Examples:
  holdfast workspace delete site --dry-run
  holdfast workspace delete site --force`
}

// Run deletes a workspace.
func (w *workspaceDeleteCmd) Run(e *env) error {
	done, err := ofWorkspace(e, w.Name, func(c *client.Client, ctx context.Context, id holdfast.Slug) (holdfast.DeletedWorkspace, error) {
		return c.DeleteWorkspace(ctx, id, w.Force, w.DryRun)
	})
	if err != nil {
		return err
	}
	would := ""
	if w.DryRun {
		would = "would be "
	}
	files := map[string]string{"kept": "its directory stays as it is", "trashed": "its files " + would + "moved to the trash, from which no command restores them"}[done.Files]
	sessions := fmt.Sprintf("%d sessions go on in copies of their newest checkpoints", len(done.Sessions))
	if len(done.Sessions) == 1 {
		sessions = "1 session goes on in a copy of its newest checkpoint"
	}
	return e.say(done, "%s %sdeleted; %s; %s", w.Name, would, sessions, files)
}
