// The matrices as one picture, with title, notes, captions and colour bars.

import {contextOf, device, kFont} from './pen.mjs';

/** @typedef {import('./figure.mjs').Figure} Figure */

const kPictureMargin = 14, kPictureTitle = 16, kPictureText = 12, kPictureLine = 18;

/**
 * @param {string} title
 * @param {string[]} notes
 * @param {Figure[]} figures side by side
 */
export function savedPicture(title, notes, figures) {
  const {ratio} = device, picture = document.createElement('canvas');
  const context = contextOf(picture);
  context.font = `${kPictureText}px ${kFont}`;
  const heading = kPictureMargin + kPictureTitle + 8 + kPictureLine * notes.length, caption = 2 * kPictureLine + 18;
  const widths = figures.map(figure => Math.max(figure.base.width / ratio, figure.bar.width / ratio, Math.ceil(context.measureText(figure.caption).width)) + kPictureMargin);
  const width = Math.max(400, widths.reduce((sum, one) => sum + one, kPictureMargin));
  const height = heading + caption + Math.max(...figures.map(figure => figure.base.height / ratio)) + kPictureMargin;
  picture.width = Math.round(width * ratio);
  picture.height = Math.round(height * ratio);
  const style = getComputedStyle(document.body);
  context.scale(ratio, ratio);
  context.fillStyle = style.backgroundColor;
  context.fillRect(0, 0, width, height);
  context.fillStyle = style.color;
  context.font = `bold ${kPictureTitle}px ${kFont}`;
  context.fillText(title, kPictureMargin, kPictureMargin + kPictureTitle);
  context.font = `${kPictureText}px ${kFont}`;
  notes.forEach((note, k) => context.fillText(note, kPictureMargin, kPictureMargin + kPictureTitle + kPictureLine * (k + 1)));
  let left = kPictureMargin;
  figures.forEach((figure, k) => {
    context.fillText(figure.caption, left, heading + kPictureText);
    context.drawImage(figure.bar, left, heading + kPictureLine, figure.bar.width / ratio, figure.bar.height / ratio);
    context.drawImage(figure.base, left, heading + caption, figure.base.width / ratio, figure.base.height / ratio);
    left += widths[k];
  });
  return picture;
}
