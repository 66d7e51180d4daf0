//! Keyboard input for tests of keyboard-only use.

use anyhow::{Context, Result};
use fantoccini::{
    actions::{InputSource, KeyAction, KeyActions},
    key,
};

use super::Browser;

/// Key of the keyboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// Key that types this character.
    Of(char),
    /// Tab key, which moves the focus to the next element.
    Tab,
    /// Shift+Tab, which moves the focus to the previous element.
    BackTab,
    /// Enter key, which activates the focused element.
    Enter,
    /// Escape key, which closes the open dialog or menu.
    Escape,
    /// Arrow-down key, which moves to the next row.
    Down,
    /// Arrow-up key, which moves to the previous row.
    Up,
    /// Page-down key, which scrolls by one screen.
    PageDown,
    /// End key, which moves to the last item.
    End,
}

impl Browser {
    /// Presses keys one after another on the focused element.
    ///
    /// # Errors
    /// Returns an error if the browser rejects the input.
    pub fn press(&mut self, pressed: &[Key]) -> Result<()> {
        let mut actions = KeyActions::new("keyboard".to_owned());
        for key in pressed {
            for step in steps(*key) {
                actions = actions.then(step);
            }
        }
        self.run(async |client| client.perform_actions(actions).await)
            .with_context(|| format!("pressing {pressed:?}"))
    }
}

fn steps(key: Key) -> Vec<KeyAction> {
    let (value, is_shifted) = match key {
        Key::Of(letter) => (letter, false),
        Key::Tab => (char::from(key::Key::Tab), false),
        Key::BackTab => (char::from(key::Key::Tab), true),
        Key::Enter => (char::from(key::Key::Enter), false),
        Key::Escape => (char::from(key::Key::Escape), false),
        Key::Down => (char::from(key::Key::Down), false),
        Key::Up => (char::from(key::Key::Up), false),
        Key::PageDown => (char::from(key::Key::PageDown), false),
        Key::End => (char::from(key::Key::End), false),
    };
    let press = [KeyAction::Down { value }, KeyAction::Up { value }];
    let shift = char::from(key::Key::Shift);
    if is_shifted {
        let [down, up] = press;
        return vec![KeyAction::Down { value: shift }, down, up, KeyAction::Up { value: shift }];
    }
    press.to_vec()
}
