package egress

import (
	"encoding/json"
	"net/http"
)

// refuseMessages answers with an error in the format of the Messages API.
func refuseMessages(w http.ResponseWriter, status int, kind, message string) {
	type detail struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	}
	write(w, status, struct {
		Type  string `json:"type"`
		Error detail `json:"error"`
	}{"error", detail{kind, message}})
}

// refuseChat answers with an error in the format of the chat completions API.
func refuseChat(w http.ResponseWriter, status int, kind, message string) {
	type detail struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}
	write(w, status, struct {
		Error detail `json:"error"`
	}{detail{Message: message, Type: kind}})
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // an error means that the client has disconnected, which is normal
}

// errorKind and errorText return the error type and the message in a provider's JSON error answer; empty if
// raw is something else, such as a web page.
func errorKind(raw []byte) string { kind, _ := errorOf(raw); return kind }
func errorText(raw []byte) string { _, text := errorOf(raw); return text }

func errorOf(raw []byte) (kind, text string) {
	var e struct {
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
	}
	_ = json.Unmarshal(raw, &e)
	return e.Error.Type, e.Error.Message
}
