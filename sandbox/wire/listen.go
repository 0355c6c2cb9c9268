package wire

import "github.com/holdfast-run/holdfast"

// ListenRequest opens a proxy listener inside the box for one session. It fails with conflict if another session
// listens on the same address, except on a Unix socket in a shared box.
type ListenRequest struct {
	// Name identifies the listener; it is repeated in AcceptedRequest.
	Name string `json:"name"`
	// Network is tcp (loopback) or unix; Address has the form that net.Listen accepts. Port 0 means any that is free.
	Network string `json:"network"`
	Address string `json:"address"`
}

// ListenAnswer has the address of a listener, with its port.
type ListenAnswer struct {
	Address string `json:"address"`
}

// AcceptedRequest announces a connection that a listener accepted.
type AcceptedRequest struct {
	// Name is the listener's name, Session the session that opened it.
	Name    string             `json:"name"`
	Session holdfast.SessionID `json:"session,omitempty"`
}
