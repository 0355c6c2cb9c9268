package workspaces

import "github.com/holdfast-run/holdfast"

// Parse reads a config.yaml without the checks of a server.
func Parse(data []byte) (holdfast.Workspace, error) {
	c := Config{
		CheckModel: func(string) error { return nil }, CheckNetwork: func([]string) error { return nil },
		CheckRuntime: func(string, holdfast.Trust) error { return nil }, CheckRule: func(string) error { return nil },
		CheckLimits: func(set map[string]string) (map[string]string, error) { return set, nil },
		LimitKeys:   []string{"cpus"}, CheckEnv: func(map[string]string) error { return nil }, Sealer: openly{},
	}
	r, err := c.parse(Record{}, data)
	return r.Workspace, err
}

// RoundTrip writes the config.yaml of a workspace and reads it.
func RoundTrip(s holdfast.Workspace) (holdfast.Workspace, error) {
	data := render(s)
	got, err := Parse(data)
	got.ID = s.ID
	got.Revision, _ = exported(data)
	return got, err
}

// openly is a Sealer that does not encrypt.
type openly struct{ Sealer }

func (openly) SealWorkspace(_ holdfast.Slug, plain []byte) ([]byte, error) { return plain, nil }
