package holdfast

import "time"

// Workspace is a tree of files that outlives its sessions: made by the server, or the user's own.
type Workspace struct {
	ID    Slug   `json:"id"`
	Title string `json:"title"`
	// Dir is the path of the user's own directory, Umask the user's octal umask; empty for a tree that the server made.
	Dir   string `json:"dir,omitempty"`
	Umask string `json:"umask,omitempty"`
	// Settings of the workspace's new sessions, unless their request names others. Empty: the default applies.
	DefaultTrust Trust    `json:"default_trust_level,omitempty"`
	Model        string   `json:"model,omitempty"`
	Runtime      string   `json:"runtime,omitempty"`
	Network      []string `json:"network,omitzero"`
	// Env has the names of the environment variables that the workspace's new sessions get; each value is ***.
	Env map[string]string `json:"env,omitzero"`
	// Settings of all sessions of the workspace: limits of their boxes, and permission rules by allow, ask and deny.
	Limits      map[string]string   `json:"limits,omitzero"`
	Permissions map[string][]string `json:"permissions,omitzero"`
	// Mount is MountTree if the workspace's sessions may have the server's tree_root, read-only; else empty.
	Mount string `json:"mount,omitempty"`
	// Sessions counts the workspace's sessions that have not ended. Revision rises with every change of the workspace.
	Sessions  int       `json:"sessions"`
	Revision  int64     `json:"revision"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	// ConfigError says why the workspace's config.yaml does not have the same settings, or names the files with those
	// changes of config.yaml that were not imported.
	ConfigError string `json:"config_error,omitempty"`
}

// The mount scopes of a session: its box has the workspace alone, or also the server's tree_root, which it can only read.
const (
	MountWorkspace = "workspace"
	MountTree      = "tree-ro"
)

// WorkspaceSettings are the settings of a workspace. Its new sessions get them; limits and permissions apply to all its
// sessions.
type WorkspaceSettings struct {
	Title        *string             `json:"title,omitempty" doc:"For people."`
	DefaultTrust *string             `json:"default_trust_level,omitempty" doc:"The trust of its new sessions; empty: default_trust of the server."`
	Model        *string             `json:"model,omitempty" doc:"PROVIDER/MODEL of its new sessions; empty: the agent's, else the server's."`
	Runtime      *string             `json:"runtime,omitempty" doc:"The runtime of its new sessions; empty: the agent's, else the server's."`
	Network      *[]string           `json:"network,omitempty" doc:"What the boxes of its new sessions may connect to, within what the server grants."`
	Mount        *string             `json:"mount,omitempty" doc:"The most that boxes of its new sessions have of the server's files: workspace, or tree-ro, which adds the server's tree_root at /tree, read-only. Empty: workspace."`
	Env          map[string]string   `json:"env,omitempty" doc:"The environment of the tools of its new sessions; the names given change. Values are stored encrypted and never shown."`
	Limits       map[string]string   `json:"limits,omitempty" doc:"Limits of its boxes below the server's: memory, cpus, pids, tmp, disk, with values as 2GiB; an empty value: the server's."`
	Permissions  map[string][]string `json:"permissions,omitempty" doc:"Permission rules of its sessions, by allow, ask and deny; each list replaces the one before."`
}

// CreateWorkspace is the body of POST /v1/workspaces.
type CreateWorkspace struct {
	ID    string `json:"id,omitempty" pattern:"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$" doc:"The workspace's slug; absent: one made of the title or the directory's name."`
	Dir   string `json:"dir,omitempty" doc:"The absolute path of a directory on the server's machine, which becomes the workspace; absent: the server makes one."`
	Umask string `json:"umask,omitempty" pattern:"^0?[0-7]{1,3}$" doc:"With dir: the octal umask of the directory's user, with which sessions make files in it; absent: 022." example:"027"`
	WorkspaceSettings
}

// UpdateWorkspace is a change of a workspace: settings that are nil stay as they are.
type UpdateWorkspace struct {
	WorkspaceSettings
	RemoveEnv []string `json:"remove_env,omitempty" doc:"Names that the environment loses."`
	Revision  int64    `json:"revision,omitempty" doc:"The workspace's revision that the change is for: another one is a conflict. 0: any."`
}

// DeletedWorkspace says what a deletion did, or with DryRun would do.
type DeletedWorkspace struct {
	DryRun    bool       `json:"dry_run,omitempty"`
	ID        Slug       `json:"id,omitempty"`
	DeletedAt *time.Time `json:"deleted_at,omitempty"` // ID and DeletedAt are set only in a list of the trash
	// Sessions are the sessions of the workspace: they go on with copies of its files. Running counts those with a
	// running turn. Files is trashed, or kept for a user's directory.
	Sessions []SessionID `json:"sessions"`
	Running  int         `json:"running"`
	Files    string      `json:"files"`
}
