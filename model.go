package holdfast

// ScriptedModel names the model that is built into the server: a test double that only
// executes the script in the user's message.
const ScriptedModel = "scripted"

// Models describes the models that a server offers.
type Models struct {
	// Default is the model of sessions that name none. If no default could be determined,
	// it is empty and Error says why.
	Default string `json:"default,omitempty"`
	// Double is true if Default is ScriptedModel.
	Double bool   `json:"double,omitempty"`
	Error  string `json:"error,omitempty"`
	Hint   string `json:"hint,omitempty"`
	// Providers are all providers that the server supports, configured or not.
	Providers []ModelProvider `json:"providers"`
}

// ModelProvider is a provider of models.
type ModelProvider struct {
	// Name is the part before the slash in the names of the provider's models.
	Name string `json:"name"`
	// Host is the host name of the provider's API, with its port if it is not the default.
	Host string `json:"host"`
	// Configured is true if the server has an API key for the provider, or an address
	// that may need no key.
	Configured bool `json:"configured"`
	// Models are the models that the provider's API lists, as names for sessions. The list
	// is empty if it could not be fetched.
	Models []string `json:"models"`
	// Error says why the list could not be fetched, Hint how to fix it.
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`
}
