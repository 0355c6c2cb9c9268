package holdfast

// ScriptedModel is the model within the server: a test double that only does what the
// script in a message says.
const ScriptedModel = "scripted"

// Models are the models of a server.
type Models struct {
	// Default is the model of sessions that name none. It is empty if Error says why there
	// is none.
	Default string `json:"default,omitempty"`
	// Double: Default is ScriptedModel.
	Double bool   `json:"double,omitempty"`
	Error  string `json:"error,omitempty"`
	Hint   string `json:"hint,omitempty"`
	// Providers are all that the server knows, configured or not.
	Providers []ModelProvider `json:"providers"`
}

// ModelProvider is a provider of models.
type ModelProvider struct {
	// Name comes before the slash of a model's name.
	Name string `json:"name"`
	// Host is where it answers, with its port if that is not the usual one.
	Host string `json:"host"`
	// Configured: the server has its key, or an address that may need none.
	Configured bool `json:"configured"`
	// Models are those that it lists, by the names that sessions take. Empty without a list.
	Models []string `json:"models"`
	// Error says why there is no list, Hint what would help.
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`
}
